"""How fast a correct candidate is: measured in clean processes, by two clocks, against the roofline."""
