// assert() in device code ends the kernel with a diagnostic instead of the process. There is no
// include guard: <cassert> has none either, and the last inclusion has to win.
#include "context.h"

#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition) \
  ((condition) ? (void)0 : ::simt::assert_failed(#condition, __FILE__, __LINE__))
#endif
