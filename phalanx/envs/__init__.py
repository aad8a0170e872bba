"""Simulators. An environment contains only its rules; everything else is added by `wrappers`."""
