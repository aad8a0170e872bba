"""Running statistics, replay buffers, recorded episodes."""
