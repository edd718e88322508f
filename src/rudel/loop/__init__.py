"""The compiled programs of a training: steps, evaluation, feeding, schedules, and the state that they carry."""
