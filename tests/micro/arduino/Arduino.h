// What sketches may expect of any Arduino core, declared as ArduinoCore-API declares it: enough to compile a sketch, and
// with core.cpp to run it on this computer.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TWO_PI 6.283185307179586476925286766559
#define constrain(amt, low, high) ((amt) < (low) ? (low) : ((amt) > (high) ? (high) : (amt)))
#define LED_BUILTIN (13u)

typedef enum { LOW = 0, HIGH = 1, CHANGE = 2, FALLING = 3, RISING = 4 } PinStatus;
typedef enum { INPUT = 0, OUTPUT = 1, INPUT_PULLUP = 2, INPUT_PULLDOWN = 3, OUTPUT_OPENDRAIN = 4 } PinMode;
typedef uint8_t pin_size_t;

extern "C" {
void pinMode(pin_size_t pin, PinMode mode);
void analogWrite(pin_size_t pin, int value);
void digitalWrite(pin_size_t pin, PinStatus value);
unsigned long micros(void);
unsigned long millis(void);
void delay(unsigned long milliseconds);
void setup(void);
void loop(void);
void interrupt(void);  // of a stand-in for a sensor: called before every turn of loop
void pass(unsigned long microseconds);  // of a stand-in: lets time go by
}

class Print {
 public:
  size_t write(const uint8_t *buffer, size_t size);
  size_t print(const char *text);
  size_t print(char letter);
  size_t print(unsigned char value, int base = 10);
  size_t print(int value, int base = 10);
  size_t print(unsigned int value, int base = 10);
  size_t print(long value, int base = 10);
  size_t print(unsigned long value, int base = 10);
  size_t print(double value, int digits = 2);
  size_t println(const char *text);
  size_t println(double value, int digits = 2);
  size_t println(void);
};

class HardwareSerial : public Print {
 public:
  void begin(unsigned long baud);
};

extern HardwareSerial Serial;
