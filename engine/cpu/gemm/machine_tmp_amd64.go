package gemm


var machineAVX2 = machinePortable
