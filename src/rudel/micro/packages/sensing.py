"""Arduino sketches for a board with a microphone or a motion sensor, such as the Nano 33 BLE Sense.

They only move samples from the sensor's library to `NAME_recogniser.c`. The libraries are PDM, of Arduino's core for
the board, and Arduino_LSM9DS1 or Arduino_BMI270_BMM150.
"""

from collections.abc import Sequence

MOVING = ("aX", "aY", "aZ", "gX", "gY", "gZ")
"""What a motion sensor gives, a board's or a phone's: accelerations in g, then rotations in degrees a second."""


def other_channels(channels: Sequence[str], giver: str) -> list[str]:
    """A note where a model of movements learned from other columns than it is given, or in another order.

    Args:
        channels: that it learned from; empty where nobody said.
        giver: what gives it `MOVING`.

    >>> other_channels([], "the sketch"), other_channels(["aX", "aY", "aZ", "gX", "gY", "gZ"], "the sketch")
    ([], [])
    >>> print(*other_channels(["gX", "gY", "gZ", "aX", "aY", "aZ"], "the sketch"))
    The model learned from gX, gY, gZ, aX, aY, aZ, and the sketch gives it aX, aY, aZ, gX, gY, gZ: train it on these.
    """
    if not channels or tuple(channels) == MOVING:
        return []
    learned, given = ", ".join(channels), ", ".join(MOVING)
    return [f"The model learned from {learned}, and {giver} gives it {given}: train it on these."]


def listening_sketch(name: str) -> str:
    """A sketch that calls `on_keyword` with each word that the microphone hears.

    Args:
        name: of the model.
    """
    return f"""// Listens to the microphone, and calls on_keyword with each word that the model {name} recognises.
//
// For boards with a PDM microphone, such as the Arduino Nano 33 BLE Sense. Sound is collected by interrupt while the
// network computes.

#include <PDM.h>
#include <{name}_recogniser.h>

// Put here what a word shall do. The score is between 0 and 1.
void on_keyword(const char *name, float score) {{
  Serial.print(name);
  Serial.print(' ');
  Serial.println(score, 2);
}}

static void onSound() {{
  static int16_t samples[256];
  int bytes = PDM.available();
  while (bytes > 0) {{
    const int taken = PDM.read(samples, bytes < (int)sizeof samples ? bytes : (int)sizeof samples);
    if (taken <= 0) return;
    {name}_recogniser_put(samples, (uint32_t)taken / 2);
    bytes -= taken;
  }}
}}

void setup() {{
  Serial.begin(115200);
  pinMode(LED_BUILTIN, OUTPUT);
  {name}_recogniser_reset();
  PDM.onReceive(onSound);
  if (!PDM.begin(1, 16000)) {{
    digitalWrite(LED_BUILTIN, HIGH);  // no microphone: the LED stays on
    while (true) {{
      delay(1000);
    }}
  }}
}}

void loop() {{
  static int16_t hop[{name.upper()}_RECOGNISER_HOP];
  uint8_t score;
  if (!{name}_recogniser_take(hop)) return;
  const int32_t word = {name}_recogniser_push(hop, &score);
  if (word >= 0) on_keyword({name}_recogniser_names[word], (float)score / 255.0f);
}}
"""


def moving_sketch(name: str) -> str:
    """A sketch that calls `on_motion` with each movement of the board.

    Args:
        name: of the model, which takes rows of acceleration and rotation.
    """
    return f"""// Reads the motion sensor, and calls on_motion with each movement that the model {name} recognises.
//
// Install the library of the sensor first: Arduino_LSM9DS1 for the Arduino Nano 33 BLE and BLE Sense, or, for a Rev2,
// Arduino_BMI270_BMM150. The former gives 119 rows a second, the latter 99: a model knows the movements best that were
// recorded with the same.

// 1 for a Nano 33 BLE (Sense) Rev2.
#define REV2 0

#if REV2
#include <Arduino_BMI270_BMM150.h>
#else
#include <Arduino_LSM9DS1.h>
#endif
#include <{name}_recogniser.h>

// Put here what a movement shall do. The score is between 0 and 1.
void on_motion(const char *name, float score) {{
  Serial.print(name);
  Serial.print(' ');
  Serial.println(score, 2);
}}

void setup() {{
  Serial.begin(115200);
  pinMode(LED_BUILTIN, OUTPUT);
  {name}_recogniser_reset();
  if (!IMU.begin()) {{
    digitalWrite(LED_BUILTIN, HIGH);  // no sensor: the LED stays on
    while (true) {{
      delay(1000);
    }}
  }}
}}

void loop() {{
  float row[6];  // acceleration in g, rotation in degrees a second
  uint8_t score;
  if (!IMU.accelerationAvailable() || !IMU.gyroscopeAvailable()) return;
  IMU.readAcceleration(row[0], row[1], row[2]);
  IMU.readGyroscope(row[3], row[4], row[5]);
  const int32_t movement = {name}_recogniser_push(row, &score);
  if (movement >= 0) on_motion({name}_recogniser_names[movement], (float)score / 255.0f);
}}
"""
