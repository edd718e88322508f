// Runs a sketch on this computer: setup() once, loop() as often as the first argument says. What the sketch does to pins,
// prints and waits for comes out line by line.
#include "Arduino.h"

#include <stdio.h>

HardwareSerial Serial;

extern "C" {
void pinMode(pin_size_t pin, PinMode mode) { printf("pinMode %d %d\n", pin, mode); }
void analogWrite(pin_size_t pin, int value) { printf("analogWrite %d %d\n", pin, value); }
void digitalWrite(pin_size_t pin, PinStatus value) { printf("digitalWrite %d %d\n", pin, value); }
__attribute__((weak)) void interrupt(void) {}
unsigned long millis(void) { return micros() / 1000; }
void delay(unsigned long milliseconds) { printf("delay %lu\n", milliseconds); }
static unsigned long now = 0;
void pass(unsigned long microseconds) { now += microseconds; }
unsigned long micros(void) { return now += 125; }
}

size_t Print::write(const uint8_t *buffer, size_t size) { return fwrite(buffer, 1, size, stdout); }

size_t Print::print(const char *text) { return (size_t)printf("print %s\n", text); }
size_t Print::print(char letter) { return (size_t)printf("print %c\n", letter); }
size_t Print::print(unsigned char value, int) { return (size_t)printf("print %u\n", value); }
size_t Print::print(int value, int) { return (size_t)printf("print %d\n", value); }
size_t Print::print(unsigned int value, int) { return (size_t)printf("print %u\n", value); }
size_t Print::print(long value, int) { return (size_t)printf("print %ld\n", value); }
size_t Print::print(unsigned long value, int) { return (size_t)printf("print %lu\n", value); }
size_t Print::print(double value, int digits) { return (size_t)printf("print %.*f\n", digits, value); }
size_t Print::println(const char *text) { return print(text); }
size_t Print::println(double value, int digits) { return print(value, digits); }
size_t Print::println(void) { return 0; }
void HardwareSerial::begin(unsigned long baud) { printf("begin %lu\n", baud); }

int main(int, char **arguments) {
  setup();
  for (long i = atol(arguments[1]); i > 0; i--) {
    interrupt();
    loop();
  }
}
