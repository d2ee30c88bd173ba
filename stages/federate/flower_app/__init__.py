"""The apps of a federation by the terms beside this file. Flower carries sealed parcels between workers that stay.

All that Flower starts is in this folder. It imports Python's own library and Flower, and sees no data: a worker does
the work, outside of Flower's processes, and takes from here nothing but parcels that are sealed to it.
"""
