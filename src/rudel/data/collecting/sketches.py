"""Arduino sketches that send what a sensor measures, in the frames of `frames.py`.

The libraries are PDM, of Arduino's core for boards with a microphone, and Arduino_LSM9DS1 or Arduino_BMI270_BMM150.
"""

from pathlib import Path

from rudel.errors import DataError
from rudel.files import written_atomically

_FRAMES = """
// A frame: a mark, its kind, a number that counts, the length, the bytes, and their CRC.
static void send(char kind, uint8_t sequence, const void *payload, uint16_t length) {
  const uint8_t head[] = {0xA5, 0x5A, (uint8_t)kind, sequence, (uint8_t)length, (uint8_t)(length >> 8)};
  uint16_t check = checked(0xFFFF, head + 2, sizeof head - 2);
  check = checked(check, (const uint8_t *)payload, length);
  const uint8_t tail[] = {(uint8_t)check, (uint8_t)(check >> 8)};
  Serial.write(head, sizeof head);
  Serial.write((const uint8_t *)payload, length);
  Serial.write(tail, sizeof tail);
}

// What the frames hold, said again each second for whoever begins to listen.
static void sayWhat() {
  static unsigned long saidAt = 0;
  static bool said = false;
  const unsigned long now = millis();
  if (said && now - saidAt < 1000) return;
  said = true;
  saidAt = now;
  send('H', 0, WHAT, sizeof WHAT - 1);
}
"""

_CHECK = """
static uint16_t checked(uint16_t check, const uint8_t *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    check = (uint16_t)(check ^ (uint16_t)(bytes[i] << 8));
    for (int bit = 0; bit < 8; bit++) {
      check = (uint16_t)((check & 0x8000) ? (check << 1) ^ 0x1021 : check << 1);
    }
  }
  return check;
}
"""

_NO_SENSOR = """    digitalWrite(LED_BUILTIN, HIGH);  // no sensor: the LED stays on
    while (true) {
      delay(1000);
    }
"""

_SOUND = (
    """// Sends what the microphone hears to `rudel data collect`.
//
// For boards with a PDM microphone, such as the Arduino Nano 33 BLE Sense. Made by Rudel.

#include <PDM.h>

static const char WHAT[] = "sound 16000";
"""
    + _CHECK
    + _FRAMES
    + """
// A ring with one writer, the interrupt, and one reader: half a second of sound.
enum { FRAME = 256, FRAMES = 32 };
static int16_t ring[FRAMES][FRAME];
static volatile uint32_t written = 0, sent = 0;  // frames
static uint32_t filled = 0;                      // samples of the frame that is being written

static void onSound() {
  static int16_t samples[FRAME];
  int bytes = PDM.available();
  while (bytes > 0) {
    const int taken = PDM.read(samples, bytes < (int)sizeof samples ? bytes : (int)sizeof samples);
    if (taken <= 0) return;
    for (int i = 0; i < taken / 2; i++) {
      ring[written % FRAMES][filled] = samples[i];
      if (++filled < FRAME) continue;
      filled = 0;
      written = written + 1;
    }
    bytes -= taken;
  }
}

void setup() {
  Serial.begin(115200);
  pinMode(LED_BUILTIN, OUTPUT);
  PDM.onReceive(onSound);
  if (!PDM.begin(1, 16000)) {
"""
    + _NO_SENSOR
    + """  }
}

void loop() {
  static int16_t frame[FRAME];
  sayWhat();
  if (sent == written) return;
  // What was overwritten meanwhile is passed over; the number of the frame says so.
  if (written - sent >= FRAMES) sent = written - FRAMES + 1;
  memcpy(frame, ring[sent % FRAMES], sizeof frame);
  if (written - sent < FRAMES) send('D', (uint8_t)sent, frame, sizeof frame);
  sent = sent + 1;
}
"""
)

_MOTION = (
    """// Sends what the motion sensor measures to `rudel data collect`.
//
// Install the library of the sensor first: Arduino_LSM9DS1 for the Arduino Nano 33 BLE and BLE Sense, or, for a Rev2,
// Arduino_BMI270_BMM150. Made by Rudel.

// 1 for a Nano 33 BLE (Sense) Rev2.
#define REV2 0

#if REV2
#include <Arduino_BMI270_BMM150.h>
#else
#include <Arduino_LSM9DS1.h>
#endif

static const char WHAT[] = "motion aX,aY,aZ,gX,gY,gZ";
"""
    + _CHECK
    + _FRAMES
    + """
void setup() {
  Serial.begin(115200);
  pinMode(LED_BUILTIN, OUTPUT);
  if (!IMU.begin()) {
"""
    + _NO_SENSOR
    + """  }
}

void loop() {
  static uint8_t sequence = 0;
  float row[6];  // acceleration in g, rotation in degrees a second
  sayWhat();
  if (!IMU.accelerationAvailable() || !IMU.gyroscopeAvailable()) return;
  IMU.readAcceleration(row[0], row[1], row[2]);
  IMU.readGyroscope(row[3], row[4], row[5]);
  send('D', sequence++, row, sizeof row);
}
"""
)

SKETCHES = {"sound": _SOUND, "motion": _MOTION}
"""The texts of the sketches, by what they send."""


def write_sketch(kind: str, out: Path) -> Path:
    """Writes a sketch into a folder, in which Arduino's tools find it.

    Args:
        kind: sound or motion.
        out: the folder; its name becomes that of the sketch.

    Raises:
        DataError: it cannot be written, or is there already.
    """
    path = out / f"{out.resolve().name}.ino"
    if path.exists():
        raise DataError(f"{path} already exists: give another folder to --out.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with written_atomically(path) as file:
            file.write(SKETCHES[kind].encode())
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}): give another folder to --out.") from error
    return path
