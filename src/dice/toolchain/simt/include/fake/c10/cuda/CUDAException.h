#pragma once
#include "simt_torch.h"
