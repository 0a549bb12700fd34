#include "dice_stub/all.h"
