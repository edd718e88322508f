/* What the sketch that runs a model for `rudel micro bench --port` and the code that answers requests know of each other. */
#ifndef BENCH_LINE_H
#define BENCH_LINE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Takes what has come over the line, and answers requests; to be called over and over. */
void bench_poll(void);

/* The board's part: the next byte, or -1 if none has come; bytes to send; a clock; the processor's hertz, 0 if unknown. */
int bench_read(void);
void bench_write(const uint8_t *bytes, uint32_t count);
uint32_t bench_micros(void);
uint32_t bench_hertz(void);

#ifdef __cplusplus
}
#endif

#endif
