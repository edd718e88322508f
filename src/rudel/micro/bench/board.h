/* What startup.c, harness.c and the part that is made for a model know of each other. */
#ifndef BENCH_BOARD_H
#define BENCH_BOARD_H

#include <stdint.h>

enum { BENCH_FAULT = 97, BENCH_NO_FILE = 98, BENCH_SHORT_FILE = 99 };

int32_t bench_semihosting(int32_t operation, const void *argument);
void bench_exit(uint32_t status) __attribute__((noreturn));

/* Memory that an input is put into, or an output is taken from. */
typedef struct {
    void *place;
    uint32_t bytes;
} bench_port;

/* Made for the model: where its inputs and outputs are, how many, and what there is to call. */
extern const bench_port bench_inputs[], bench_outputs[];
extern const uint32_t bench_input_count, bench_output_count;
void bench_reset_model(void);
void bench_invoke(void);

/* The end of a layer, in an image that was built with BENCH_LAYERS, how many there are. */
void bench_layer(int layer);

#endif
