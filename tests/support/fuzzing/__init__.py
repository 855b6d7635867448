"""Random programs against every judge there is: laws, noise, JAX, XLA, and the reduction of what fails."""
