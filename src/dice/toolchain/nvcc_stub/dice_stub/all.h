#pragma once
#include "cuda.h"
#include "dispatch.h"
