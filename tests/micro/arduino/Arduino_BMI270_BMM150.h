// A stand-in for the library of the sensor of a Rev2, whose class has the same functions.
#pragma once
#include "Arduino_LSM9DS1.h"
