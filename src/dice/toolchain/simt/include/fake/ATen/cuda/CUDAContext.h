#pragma once
#include "simt/blas.h"
