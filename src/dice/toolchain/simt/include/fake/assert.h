// <cassert> and <assert.h> with the macro that device code needs.
#include_next <assert.h>
#include "simt/assert_macro.h"
