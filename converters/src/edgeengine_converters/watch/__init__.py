"""The exercise classifier of the coach application: six smart-watch channels in, seven exercises out.

`source` reads the recordings, `data` splits and windows them, `augment` varies the training windows, `net` is
the network, `train` fits it, `evaluate` measures it, `artefact` writes the model and its manifest.
`source` and `data` need numpy only.
"""
