#pragma once
#include "dice_nvrtc.h"
#ifndef assert
#define assert(condition) ((condition) ? (void)0 : __trap())
#endif
