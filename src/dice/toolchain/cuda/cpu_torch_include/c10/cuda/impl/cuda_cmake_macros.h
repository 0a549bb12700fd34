// torch without CUDA lacks this generated header; what it would say.
#pragma once
#define C10_CUDA_BUILD_SHARED_LIBS
