#!/usr/bin/env python3
"""Makes the NPZ file that snug reads out of a flight's three HDF5 files.

    convert.py IMAGES.h5 LIDAR.h5 NAVIGATION.h5 FLIGHT.npz

IMAGES has Product/Signal [N, rows, columns] and Time/TimeUTC [N] (hours of the day), LIDAR (CPL layers) has
layer_descriptor/Profile_Decimal_Julian_Day, Layer_Base_Altitude, Lidar_Surface_Altitude and DEM_Surface_Altitude (km),
NAVIGATION has nav/solarZenith and nav/sunAzGrd, one for each second from the first picture to the last.

A frame gets the base of the lidar's first layer within half a second of it, where the surface below is the sea; all other
frames are kept without a label (NaN), since windows need them. Heights are not filtered here: data.cbh_min and data.cbh_max do.
Needs numpy and h5py.
"""

import sys

import h5py
import numpy as np

NEAREST = 0.5  # seconds between a picture and its label
MISSING = -9999
SURFACE = 0.9  # km: above, the lidar's surface is no sea


def nearest(times, wanted):
    """For each of wanted the index of the nearest of the ascending times, and the distance."""
    after = np.clip(np.searchsorted(times, wanted), 1, len(times) - 1)
    index = after - (wanted - times[after - 1] < times[after] - wanted)
    return index, np.abs(times[index] - wanted)


def convert(images, lidar, navigation):
    """{array: values} of a flight, times in seconds of the day."""
    with h5py.File(images) as f:
        frames, time = f["Product/Signal"][:], np.asarray(f["Time/TimeUTC"][:], np.float64).ravel() * 3600
    with h5py.File(lidar) as f:
        d = f["layer_descriptor"]
        when = np.asarray(d["Profile_Decimal_Julian_Day"][:], np.float64)
        when = when.reshape(len(when), -1)[:, 0] % 1 * 86400
        first = lambda name: np.asarray(d[name][:], np.float64).reshape(len(when), -1)[:, 0]
        base, surface, ground = first("Layer_Base_Altitude"), first("Lidar_Surface_Altitude"), first("DEM_Surface_Altitude")
    with h5py.File(navigation) as f:
        sza, saa = (np.asarray(f["nav/" + name][:], np.float64).ravel() for name in ("solarZenith", "sunAzGrd"))
    keep = np.concatenate([[True], np.diff(time) > 0])  # frames in order of time, each time once
    frames, time = frames[keep], time[keep]
    good = (base != MISSING) & (base > 0) & (np.abs(surface) <= SURFACE) & (ground == 0)
    order = np.argsort(when[good])
    at, base = when[good][order], base[good][order]
    cbh = np.full(len(time), np.nan)
    if len(at) > 1:
        index, distance = nearest(at, time)
        cbh[distance <= NEAREST] = base[index[distance <= NEAREST]]
    place = np.linspace(0, len(sza) - 1, len(time)).round().astype(int)
    return {"frames": frames, "time": time, "sza": sza[place], "saa": saa[place] % 360, "cbh": cbh}


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    flight = convert(*sys.argv[1:4])
    np.savez_compressed(sys.argv[4], **flight)
    n, labels = len(flight["time"]), np.isfinite(flight["cbh"]).sum()
    print(f"{sys.argv[4]}: {n} frames of {flight['frames'].shape[1:]}, {labels} with a cloud base")


if __name__ == "__main__":
    main()
