// A stand-in for the library PDM of Arduino's core for mbed boards, declared as there: on this computer, the microphone
// is the standard input, 16-bit samples, of which a packet comes before every turn of loop().
#pragma once
#include <stddef.h>

class PDMClass {
 public:
  int begin(int channels, int sampleRate);
  void end();
  virtual int available();
  virtual int read(void *buffer, size_t size);
  void onReceive(void (*)(void));
  void setGain(int gain);
  void setBufferSize(int bufferSize);
};

extern PDMClass PDM;
