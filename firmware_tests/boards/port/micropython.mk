# Adds what MicroPython's qemu port lacks: a clock, asyncio, a file system in memory.
SRC_USERMOD_C += $(USERMOD_DIR)/port.c
CFLAGS_USERMOD += -I$(USERMOD_DIR) -DMP_CONFIGFILE='<port.h>'
ifeq ($(QEMU_ARCH),arm)
LDFLAGS_USERMOD += -T $(USERMOD_DIR)/discard.ld
endif
