// What MicroPython's qemu port lacks and a watchdog needs: a clock, the serial port as bytes, and
// memory that stands for flash. Module `port`; `machine.py` beside it makes a board of these.
#include <string.h>

#include "py/mphal.h"
#include "py/objarray.h"
#include "py/runtime.h"
#include "uart.h"

#if defined(QEMU_SOC_MPS2)
#define TICKS_PER_US (1)
#define FLASH_START (0x00300000)
#elif defined(QEMU_SOC_NRF51)
#define TICKS_PER_US (1)
#define FLASH_START (0x20018000) // between the heap of 64 KiB and the stack
#elif defined(QEMU_SOC_VIRT)
#define TICKS_PER_US (10)
#define FLASH_START (0x80700000)
#endif
#define FLASH_SIZE (128 * 1024)

#define REGISTER(address) (*(volatile uint32_t *)(address))

// The emulated timer's count; the first call starts it.
static uint32_t read_timer(void) {
    #if defined(QEMU_SOC_VIRT)
    return REGISTER(0x0200bff8); // 10 MHz, always on
    #else
    static bool is_running = false;
    #if defined(QEMU_SOC_MPS2)
    if (!is_running) {
        REGISTER(0x4002801c) = 24; // prescaler: 25 MHz to 1 MHz
    }
    is_running = true;
    return REGISTER(0x40028018);
    #else // nRF51
    if (!is_running) {
        REGISTER(0x40008508) = 3; // 32 bits
        REGISTER(0x40008510) = 4; // 16 MHz to 1 MHz
        REGISTER(0x40008000) = 1;
    }
    is_running = true;
    REGISTER(0x40008040) = 1; // capture
    return REGISTER(0x40008540);
    #endif
    #endif
}

// Time since the start. No 64-bit division: libgcc's has tables for which the linker script has no room.
static uint32_t count_us = 0;
static uint32_t count_ms = 0;

static void update_clock(void) {
    static uint32_t last = 0;
    static uint32_t rest = 0; // microseconds that are no whole millisecond yet
    uint32_t passed = (read_timer() - last) / TICKS_PER_US;
    last += passed * TICKS_PER_US;
    count_us += passed;
    rest += passed;
    count_ms += rest / 1000;
    rest %= 1000;
}

// A timer that becomes pending ends the wait; interrupts are off, so that nothing handles it.
void port_rest(void) {
    #if defined(QEMU_SOC_VIRT)
    REGISTER(0x02004004) = 0xffffffff; // no moment in between, while the halves are written
    REGISTER(0x02004000) = REGISTER(0x0200bff8) + 1000 * TICKS_PER_US;
    REGISTER(0x02004004) = REGISTER(0x0200bffc);
    __asm volatile ("csrci mstatus, 8\n csrs mie, %0\n wfi\n csrc mie, %0\n csrsi mstatus, 8" ::"r" (0x80));
    #else
    __asm volatile ("cpsid i");
    REGISTER(0xe000e014) = 25000; // SysTick: a millisecond at 25 MHz
    REGISTER(0xe000e018) = 0;
    REGISTER(0xe000e010) = 7;
    __asm volatile ("dsb\n wfi");
    REGISTER(0xe000e010) = 0;
    REGISTER(0xe000ed04) = 1 << 25; // no longer pending
    __asm volatile ("cpsie i");
    #endif
}

mp_uint_t mp_hal_ticks_us(void) {
    update_clock();
    return count_us;
}

mp_uint_t mp_hal_ticks_ms(void) {
    update_clock();
    return count_ms;
}

mp_uint_t mp_hal_ticks_cpu(void) {
    return mp_hal_ticks_us();
}

uint64_t mp_hal_time_ns(void) {
    return (uint64_t)mp_hal_ticks_ms() * 1000000;
}

void mp_hal_delay_us(mp_uint_t us) {
    mp_uint_t start = mp_hal_ticks_us();
    while (mp_hal_ticks_us() - start < us) {
    }
}

void mp_hal_delay_ms(mp_uint_t ms) {
    mp_uint_t start = mp_hal_ticks_ms();
    while (mp_hal_ticks_ms() - start < ms) {
        mp_handle_pending(true);
        port_rest();
    }
}

// Bytes that have come; a byte that follows within `pause` microseconds belongs to them.
static mp_obj_t port_read(mp_obj_t limit_in, mp_obj_t pause_in) {
    mp_int_t limit = mp_obj_get_int(limit_in);
    mp_int_t pause = mp_obj_get_int(pause_in);
    vstr_t data;
    vstr_init(&data, 32);
    mp_uint_t last = 0;
    while ((mp_int_t)data.len < limit) {
        int c = uart_rx_chr();
        if (c >= 0) {
            vstr_add_byte(&data, (byte)c);
            last = mp_hal_ticks_us();
        } else if (data.len == 0 || (mp_int_t)(mp_hal_ticks_us() - last) >= pause) {
            break;
        }
    }
    return mp_obj_new_bytes_from_vstr(&data);
}
static MP_DEFINE_CONST_FUN_OBJ_2(port_read_obj, port_read);

static mp_obj_t port_write(mp_obj_t data_in) {
    mp_buffer_info_t data;
    mp_get_buffer_raise(data_in, &data, MP_BUFFER_READ);
    uart_tx_strn(data.buf, data.len);
    return mp_obj_new_int(data.len);
}
static MP_DEFINE_CONST_FUN_OBJ_1(port_write_obj, port_write);

static mp_obj_t port_flash(void) {
    return mp_obj_new_memoryview('B' | MP_OBJ_ARRAY_TYPECODE_FLAG_RW, FLASH_SIZE, (void *)FLASH_START);
}
static MP_DEFINE_CONST_FUN_OBJ_0(port_flash_obj, port_flash);

static const mp_rom_map_elem_t port_globals_table[] = {
    {MP_ROM_QSTR(MP_QSTR___name__), MP_ROM_QSTR(MP_QSTR_port)},
    {MP_ROM_QSTR(MP_QSTR_read), MP_ROM_PTR(&port_read_obj)},
    {MP_ROM_QSTR(MP_QSTR_write), MP_ROM_PTR(&port_write_obj)},
    {MP_ROM_QSTR(MP_QSTR_flash), MP_ROM_PTR(&port_flash_obj)},
};
static MP_DEFINE_CONST_DICT(port_globals, port_globals_table);

const mp_obj_module_t port_module = {
    .base = {&mp_type_module},
    .globals = (mp_obj_dict_t *)&port_globals,
};
MP_REGISTER_MODULE(MP_QSTR_port, port_module);
