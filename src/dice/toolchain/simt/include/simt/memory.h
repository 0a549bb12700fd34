// Loads and stores with cache hints: plain accesses here.
#pragma once

#include "qualifiers.h"

#define SIMT_LOAD(Name)              \
  template <class T>                 \
  inline T Name(const T* address) {  \
    return *address;                 \
  }
#define SIMT_STORE(Name)                                                \
  template <class T>                                                    \
  inline void Name(T* address, std::type_identity_t<T> value) {         \
    *address = value;                                                   \
  }

SIMT_LOAD(__ldg)
SIMT_LOAD(__ldca)
SIMT_LOAD(__ldcg)
SIMT_LOAD(__ldcs)
SIMT_LOAD(__ldcv)
SIMT_LOAD(__ldlu)
SIMT_STORE(__stcg)
SIMT_STORE(__stcs)
SIMT_STORE(__stwb)
SIMT_STORE(__stwt)
#undef SIMT_LOAD
#undef SIMT_STORE

inline size_t __cvta_generic_to_shared(const void* pointer) {
  return reinterpret_cast<size_t>(pointer);
}
