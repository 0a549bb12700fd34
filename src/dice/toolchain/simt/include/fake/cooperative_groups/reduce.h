#pragma once
#include "simt/cooperative_groups.h"
