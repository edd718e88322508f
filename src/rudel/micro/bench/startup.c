/* From reset to main() on a bare processor, and what goes through the debugger's channel (Arm semihosting).
 *
 * Nothing here calls a library function: what a model pulls in from one is then its own, and is counted as such. */
#include "board.h"

extern uint32_t bench_data_load, bench_data_start, bench_data_end, bench_bss_start, bench_bss_end, bench_stack_top;

int main(void);

int32_t bench_semihosting(int32_t operation, const void *argument) {
#ifdef __riscv
    register int32_t result __asm__("a0") = operation;
    register const void *block __asm__("a1") = argument;
    /* Three instructions of four bytes each, which a debugger knows this call by. */
    __asm__ volatile(".option push\n .option norvc\n .balign 16\n slli zero, zero, 0x1f\n ebreak\n srai zero, zero, 7\n"
                     ".option pop"
                     : "+r"(result)
                     : "r"(block)
                     : "memory");
    return result;
#else
    register int32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
#endif
}

void bench_exit(uint32_t status) {
    const uint32_t block[2] = {0x20026u, status}; /* ADP_Stopped_ApplicationExit */
    bench_semihosting(0x20, block);               /* SYS_EXIT_EXTENDED */
    for (;;) {
    }
}

static __attribute__((aligned(4), used)) void fault(void) {
    bench_exit(BENCH_FAULT);
}

__attribute__((used)) static void begin(void) {
    const volatile uint32_t *from = &bench_data_load;
    for (volatile uint32_t *to = &bench_data_start; to < &bench_data_end; to++) *to = *from++;
    for (volatile uint32_t *to = &bench_bss_start; to < &bench_bss_end; to++) *to = 0;
    bench_exit((uint32_t)main());
}

#ifdef __riscv
__attribute__((section(".vectors"), naked, used)) void bench_reset(void) {
    __asm__(".option arch, +zicsr\n la sp, bench_stack_top\n la t0, fault\n csrw mtvec, t0\n tail begin");
}
#else
void bench_reset(void) {
#ifdef __ARM_FP
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* CPACR: floats and vectors are off after reset */
    __asm__ volatile("dsb\n isb" ::: "memory");
#endif
    begin();
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &bench_stack_top, bench_reset, fault, fault, fault, fault, fault, fault, 0, 0, 0, fault, fault, 0, fault, fault};
#endif
