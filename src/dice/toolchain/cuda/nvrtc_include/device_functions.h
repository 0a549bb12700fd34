#pragma once
#include "dice_nvrtc.h"
