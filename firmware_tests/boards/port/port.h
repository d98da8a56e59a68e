// The configuration of MicroPython's qemu port, with the parts switched on that a watchdog needs.
#include "mpconfigport.h"

#undef MICROPY_PY_TIME
#define MICROPY_PY_TIME (1)
#undef MICROPY_PY_ASYNCIO
#define MICROPY_PY_ASYNCIO (1)
#undef MICROPY_PY_SELECT
#define MICROPY_PY_SELECT (1)

#ifdef QEMU_SOC_NRF51 // the code generator of an RP2040, which the port leaves out
#define MICROPY_EMIT_THUMB (1)
#define MICROPY_EMIT_THUMB_ARMV7M (0)
#endif

void port_rest(void); // for a millisecond, so that an emulator that waits takes no processor
#define MICROPY_INTERNAL_WFE(timeout) port_rest()
