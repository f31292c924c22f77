"""The compiled asynchronous iteration: arrays in, arrays out, tens of nanoseconds an event."""
