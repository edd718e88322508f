/* As much of Arduino as the bench's sketch uses, on QEMU's board mps2-an386 with 64 ns an instruction: its first UART as
 * Serial, a timer of 25 MHz as clock. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define F_CPU 15625000u

class Uart {
  enum { Data, State, Control, Divider = 4 };
  static volatile uint32_t &at(int number) { return ((volatile uint32_t *)0x40004000)[number]; }

public:
  void begin(unsigned long) {
    at(Divider) = 16;
    at(Control) = 3;
  }
  int read() { return at(State) & 2 ? (int)(uint8_t)at(Data) : -1; }
  void write(const uint8_t *bytes, size_t count) {
    for (; count > 0; count--) {
      while (at(State) & 1) {
      }
      at(Data) = *bytes++;
    }
  }
};

static Uart Serial;

static inline unsigned long micros() { return (0xFFFFFFFFu - ((volatile uint32_t *)0x40000000)[1]) / 25u; }

void setup();
void loop();

int main() {
  volatile uint32_t *const timer = (volatile uint32_t *)0x40000000;
  timer[2] = 0xFFFFFFFFu;
  timer[1] = 0xFFFFFFFFu;
  timer[0] = 1;
  setup();
  for (;;) loop();
}
