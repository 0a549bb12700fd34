// Prelude of the slim route: torch's C++ tensor API without torch/extension.h and pybind11.
//
// The include path must start with fakeslim/, which shadows ATen/{Context,DeviceGuard,TracerMode}.h
// by empty files: no operator header needs them, and they cost a second in every compilation.
#pragma once

#include <Python.h>

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <vector>

#include "simt/torch_names.h"
#include "simt_torch.h"
#include "simt_bind.h"
