// What CUDA's and torch's device headers lead to: the emulated device plus ATen/cuda stand-ins.
#pragma once

#include "simt.h"
#include "simt/half.h"
#include "simt/torch_cuda.h"
#include <cassert>
