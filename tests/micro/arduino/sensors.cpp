// The sensors of PDM.h and Arduino_LSM9DS1.h, for a sketch that runs on this computer.
#include <stdint.h>
#include <stdio.h>

#include "Arduino.h"
#include "Arduino_LSM9DS1.h"
#include "PDM.h"

PDMClass PDM;
LSM9DS1Class IMU;

static void (*received)(void) = nullptr;
static int16_t packet[256];
static size_t bytes = 0;

int PDMClass::begin(int channels, int sampleRate) { return channels == 1 && sampleRate == 16000; }
int PDMClass::available() { return (int)bytes; }
int PDMClass::read(void *buffer, size_t size) {
  const size_t taken = size < bytes ? size : bytes;
  memcpy(buffer, packet, taken);
  memmove(packet, (char *)packet + taken, bytes - taken);
  bytes -= taken;
  return (int)taken;
}
void PDMClass::onReceive(void (*function)(void)) { received = function; }

static float row[6];

int LSM9DS1Class::begin() { return 1; }
int LSM9DS1Class::accelerationAvailable() { return bytes == sizeof row; }
int LSM9DS1Class::gyroscopeAvailable() { return bytes == sizeof row; }
int LSM9DS1Class::readAcceleration(float &x, float &y, float &z) {
  x = row[0], y = row[1], z = row[2];
  return 1;
}
int LSM9DS1Class::readGyroscope(float &x, float &y, float &z) {
  x = row[3], y = row[4], z = row[5];
  return 1;
}

extern "C" void interrupt(void) {
  if (received) {
    bytes = sizeof *packet * fread(packet, sizeof *packet, 256, stdin);
    pass(16000);
    if (bytes) received();
  } else {
    bytes = fread(row, 1, sizeof row, stdin);
    pass(8403);
  }
}
