// A stand-in for the libraries of motion sensors, declared as Arduino_LSM9DS1 is: on this computer, rows of six floats
// come from the standard input.
#pragma once

class LSM9DS1Class {
 public:
  int begin();
  void end();
  virtual int readAcceleration(float &x, float &y, float &z);
  virtual int accelerationAvailable();
  virtual int readGyroscope(float &x, float &y, float &z);
  virtual int gyroscopeAvailable();
};

extern LSM9DS1Class IMU;
