"""The report on protections names each of them exactly once."""

from dice.sandbox import features


def test_every_protection_is_either_active_or_missing():
    found = features()
    names = {"landlock", "seccomp", "seccomp_record", "network_refusal", "process_namespace"}
    assert names <= set(found.active) | set(found.missing)
    assert not set(found.active) & set(found.missing)
    assert all(found.missing.values())
