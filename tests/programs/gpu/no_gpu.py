"""Calls the real driver where there is no GPU: every call fails. Prints how many addresses cuGetProcAddress hands out, and
how many of them are not the exported function's."""

import ctypes
import sys

driver = ctypes.CDLL(sys.argv[1])
results = [driver.cuInit(0)]
place = ctypes.c_uint64()
for _ in range(100):
    results.append(driver.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(1 << 20)))
    results.append(driver.cuMemHostAlloc(ctypes.byref(place), ctypes.c_size_t(1 << 20), 0))
    results.append(driver.cuMemAllocManaged(ctypes.byref(place), ctypes.c_size_t(1 << 20), 1))
    results.append(driver.cuMemAllocAsync(ctypes.byref(place), ctypes.c_size_t(1 << 20), None))
    results.append(driver.cuMemFree_v2(ctypes.c_uint64(0x1000)))
if 0 in results:
    sys.exit("a call succeeded: is there a GPU?")

handed_out = others = 0
exported = {ctypes.cast(getattr(driver, name), ctypes.c_void_p).value for name in sys.argv[2:]}
for name in sys.argv[2:]:
    # The name without its number; the newest version of it up to CUDA 12.2.
    plain = name.removesuffix("_ptsz").removesuffix("_v2").removesuffix("_v3")
    flags = 2 if name.endswith("_ptsz") else 0
    found = ctypes.c_void_p()
    if driver.cuGetProcAddress(plain.encode(), ctypes.byref(found), 12020, ctypes.c_uint64(flags)) == 0 and found.value:
        handed_out += 1
        others += found.value not in exported
print("HANDED_OUT", handed_out, others, flush=True)
