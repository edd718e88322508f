/* Answers requests that come over a serial line: to take an input, run the model, and give the output.
 *
 * A frame is two fixed bytes, kind, number, length (two bytes), payload and a CRC-32 of all after the fixed bytes; numbers
 * have the lowest byte first. An answer has the kind of the request as a small letter, and its number. What is no frame,
 * or has a wrong CRC, is skipped byte by byte without an answer, and whoever asks asks again.
 *
 *   H                  version, hash of the model (8), bytes of inputs (4), of outputs (4), hertz (4)
 *   W  at (4), bytes   at (4): those bytes of the inputs, which lie one after the other, are written
 *   R  CRC (4)         microseconds (4): has run once, on inputs with that CRC; asked again, it answers the same
 *   G  at (4), n (1)   at (4), bytes of the outputs
 *
 * Anything that cannot be done is answered by `e` and a reason. */
#include "bench_line.h"

#include <string.h>

#include "board.h"

extern const uint8_t bench_hash[8];

enum { VERSION = 1, FIRST = 0xA5, SECOND = 0x5A, HEADER = 6, PAYLOAD = 132, CHECK = 4 };
enum { UNKNOWN = 1, OTHER_INPUT, HAS_NOT_RUN };

static uint8_t frame[HEADER + PAYLOAD + CHECK], answer[HEADER + PAYLOAD + CHECK];
static uint32_t filled, microseconds;
static uint8_t has_run;

static uint32_t word_at(const uint8_t *from) {
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static void put_word(uint8_t *to, uint32_t word) {
    for (int i = 0; i < 4; i++, word >>= 8) to[i] = (uint8_t)word;
}

static uint32_t checked(uint32_t crc, const uint8_t *bytes, uint32_t count) {
    for (crc = ~crc; count > 0; count--) {
        crc ^= *bytes++;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

static uint32_t bytes_of(const bench_port *ports, uint32_t count) {
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) bytes += ports[i].bytes;
    return bytes;
}

/* Moves bytes into ports or out of them; returns whether there are so many. */
static int moved(const bench_port *ports, uint32_t count, uint32_t at, uint8_t *bytes, uint32_t left, int in) {
    for (uint32_t i = 0; i < count && left > 0; i++) {
        if (at >= ports[i].bytes) {
            at -= ports[i].bytes;
            continue;
        }
        uint8_t *const place = (uint8_t *)ports[i].place + at;
        const uint32_t here = ports[i].bytes - at < left ? ports[i].bytes - at : left;
        memcpy(in ? place : bytes, in ? bytes : place, here);
        bytes += here;
        left -= here;
        at = 0;
    }
    return left == 0;
}

static void run(void) {
    bench_reset_model();
    const uint32_t start = bench_micros();
    bench_invoke();
    microseconds = bench_micros() - start;
    has_run = 1;
}

static void send(uint8_t kind, uint8_t number, uint32_t length) {
    answer[0] = FIRST;
    answer[1] = SECOND;
    answer[2] = kind;
    answer[3] = number;
    answer[4] = (uint8_t)length;
    answer[5] = 0;
    put_word(answer + HEADER + length, checked(0, answer + 2, HEADER - 2 + length));
    bench_write(answer, HEADER + length + CHECK);
}

static void refuse(uint8_t number, uint8_t reason) {
    answer[HEADER] = reason;
    send('e', number, 1);
}

static void reply(uint8_t kind, uint8_t number, uint8_t *payload, uint32_t length) {
    uint8_t *const to = answer + HEADER;
    if (kind == 'H' && length == 0) {
        to[0] = VERSION;
        memcpy(to + 1, bench_hash, sizeof bench_hash);
        put_word(to + 9, bytes_of(bench_inputs, bench_input_count));
        put_word(to + 13, bytes_of(bench_outputs, bench_output_count));
        put_word(to + 17, bench_hertz());
        send('h', number, 21);
    } else if (kind == 'W' && length > 4 &&
               moved(bench_inputs, bench_input_count, word_at(payload), payload + 4, length - 4, 1)) {
        has_run = 0;
        memcpy(to, payload, 4);
        send('w', number, 4);
    } else if (kind == 'R' && length == 4) {
        uint32_t crc = 0;
        for (uint32_t i = 0; !has_run && i < bench_input_count; i++) {
            crc = checked(crc, (const uint8_t *)bench_inputs[i].place, bench_inputs[i].bytes);
        }
        if (!has_run && crc != word_at(payload)) {
            refuse(number, OTHER_INPUT);
            return;
        }
        if (!has_run) run();
        put_word(to, microseconds);
        send('r', number, 4);
    } else if (kind == 'G' && length == 5 && payload[4] <= PAYLOAD - 4) {
        if (!has_run) {
            refuse(number, HAS_NOT_RUN);
        } else if (moved(bench_outputs, bench_output_count, word_at(payload), to + 4, payload[4], 0)) {
            memcpy(to, payload, 4);
            send('g', number, 4u + payload[4]);
        } else {
            refuse(number, UNKNOWN);
        }
    } else {
        refuse(number, UNKNOWN);
    }
}

/* Looks at what has come; returns how many bytes are done with, 0 where more have to come. */
static uint32_t taken(void) {
    if (frame[0] != FIRST || (filled > 1 && frame[1] != SECOND)) return 1;
    if (filled < HEADER) return 0;
    const uint32_t length = frame[4] | (uint32_t)frame[5] << 8, end = HEADER + length;
    if (length > PAYLOAD) return 1;
    if (filled < end + CHECK) return 0;
    if (word_at(frame + end) != checked(0, frame + 2, end - 2)) return 1;
    reply(frame[2], frame[3], frame + HEADER, length);
    return end + CHECK;
}

void bench_poll(void) {
    for (int byte = bench_read(); byte >= 0; byte = bench_read()) {
        frame[filled++] = (uint8_t)byte;
        for (uint32_t done = taken(); done > 0; done = filled > 0 ? taken() : 0) {
            filled -= done;
            memmove(frame, frame + done, filled);
        }
    }
}
