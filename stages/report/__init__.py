"""`report`: a run as one page that needs no network, no script and no fedsynth to be read. Free of torch."""
