/* Runs a model on every input of `inputs.bin`, writes its outputs to `outputs.bin` and a record of each run to
 * `records.bin`: words of ticks and of bytes of stack; with BENCH_LAYERS also the ticks that a call of bench_layer() itself
 * takes, and those until the end of each layer.
 *
 * Time is that of the board's timer, taken as one that counts down. */
#include "board.h"

extern uint32_t bench_stack_limit;

#define TIMER(place) (*(volatile uint32_t *)(place))
#define NOW() (BENCH_TIMER_NOW)
enum { PAINT = 0x5AFEC0DE, PAINTED_BYTES = 65536, MARGIN_BYTES = 64 };

typedef struct {
    uint32_t ticks, stack_bytes;
#ifdef BENCH_LAYERS
    uint32_t hook_ticks, layers[BENCH_LAYERS];
#endif
} Record;

static Record record;

static uint32_t opened(const char *name, uint32_t length, uint32_t mode) {
    const uint32_t block[3] = {(uint32_t)name, mode, length};
    const int32_t file = bench_semihosting(0x01, block);
    if (file < 0) bench_exit(BENCH_NO_FILE);
    return (uint32_t)file;
}

/* SYS_READ (6) and SYS_WRITE (5) answer how many bytes are left to do. */
static uint32_t moved(int32_t operation, uint32_t file, const void *data, uint32_t bytes) {
    const uint32_t block[3] = {file, (uint32_t)data, bytes};
    return bytes - (uint32_t)bench_semihosting(operation, block);
}

static void write_all(uint32_t file, const void *data, uint32_t bytes) {
    if (moved(0x05, file, data, bytes) != bytes) bench_exit(BENCH_SHORT_FILE);
}

#ifdef BENCH_LAYERS
static volatile uint32_t *next_layer;

void bench_layer(int layer) {
    (void)layer;
    *next_layer++ = NOW();
}

static uint32_t ticks_of_hook(void) {
    uint32_t ends[2];
    next_layer = ends;
    bench_layer(0);
    bench_layer(1);
    return ends[0] - ends[1];
}
#endif

static uint32_t *painted_from(uint32_t *stack) {
    uint32_t *low = stack - PAINTED_BYTES / sizeof *stack;
    return low < &bench_stack_limit ? &bench_stack_limit : low;
}

static __attribute__((noinline)) void run(void) {
    uint32_t *const stack = (uint32_t *)__builtin_frame_address(0);
    uint32_t *const low = painted_from(stack);
    uint32_t *here;
#ifdef __riscv
    __asm__ volatile("mv %0, sp" : "=r"(here));
#else
    __asm__ volatile("mov %0, sp" : "=r"(here));
#endif
    for (volatile uint32_t *place = low; place < here; place++) *place = PAINT;

    const uint32_t nothing = NOW();
    const uint32_t before = NOW();
#ifdef BENCH_LAYERS
    record.hook_ticks = ticks_of_hook();
    next_layer = record.layers;
#endif
    const uint32_t start = NOW();
    bench_invoke();
    const uint32_t end = NOW();

    const volatile uint32_t *deepest = low;
    while (deepest < here && *deepest == PAINT) deepest++;
    record.ticks = start - end - (nothing - before);
    record.stack_bytes = (uint32_t)(here - deepest) * (uint32_t)sizeof *here;
#ifdef BENCH_LAYERS
    for (uint32_t layer = 0; layer < BENCH_LAYERS; layer++) record.layers[layer] = start - record.layers[layer];
#endif
}

static int read_inputs(uint32_t file) {
    for (uint32_t i = 0; i < bench_input_count; i++) {
        if (moved(0x06, file, bench_inputs[i].place, bench_inputs[i].bytes) != bench_inputs[i].bytes) return 0;
    }
    return 1;
}

int main(void) {
    BENCH_TIMER_START
    const uint32_t inputs = opened("inputs.bin", 10, 1);   /* rb */
    const uint32_t outputs = opened("outputs.bin", 11, 5); /* wb */
    const uint32_t records = opened("records.bin", 11, 5);
    while (read_inputs(inputs)) {
        bench_reset_model();
        run();
        for (uint32_t i = 0; i < bench_output_count; i++) {
            write_all(outputs, bench_outputs[i].place, bench_outputs[i].bytes);
        }
        write_all(records, &record, sizeof record);
    }
    return 0;
}
