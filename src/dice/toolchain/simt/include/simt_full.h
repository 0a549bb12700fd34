// Prelude of the full route, for sources that bring their own PYBIND11_MODULE.
#pragma once

#include <torch/extension.h>

#include "simt_torch.h"
#include "simt_bind.h"
