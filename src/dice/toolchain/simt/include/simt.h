// The emulated device: everything a .cu file sees without including a header.
#pragma once

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "simt/qualifiers.h"
#include "simt/vector_types.h"
#include "simt/context.h"
#include "simt/launch.h"
#include "simt/warp.h"
#include "simt/atomics.h"
#include "simt/math.h"
#include "simt/integer.h"
#include "simt/memory.h"
#include "simt/runtime_api.h"
