package device

// cards is the table. Peaks are the dense figures of NVIDIA's data sheets and architecture white
// papers, with fp32 sums (GeForce cards run fp16 matmuls at half rate with them). Usable is the
// smallest total_memory that CUDA programs printed in public logs; a T4 had 190 MiB more with the
// drivers of 2021.
var cards = [...]Card{
	{
		Name: "P100", Product: "Tesla P100-PCIE-16GB", Arch: "Pascal", Capability: Capability{6, 0}, SMs: 56, Watts: 250,
		Memory: 16280 * mib, Usable: 16280 * mib, Bandwidth: 732e9,
		FP32: Rate{Peak: 9.3e12},
	},
	{
		Name: "V100-16GB", Product: "Tesla V100-SXM2-16GB", Aliases: []string{"V100", "Tesla V100-PCIE-16GB"},
		Arch: "Volta", Capability: Capability{7, 0}, SMs: 80, Watts: 300,
		Memory: 16384 * mib, Usable: 16160 * mib, Bandwidth: 900e9,
		FP32: Rate{Peak: 15.7e12}, FP16: Rate{Peak: 125e12},
	},
	{
		Name: "V100-32GB", Product: "Tesla V100-SXM2-32GB", Aliases: []string{"Tesla V100-PCIE-32GB"},
		Arch: "Volta", Capability: Capability{7, 0}, SMs: 80, Watts: 300,
		Memory: 32768 * mib, Usable: 32510 * mib, Bandwidth: 900e9,
		FP32: Rate{Peak: 15.7e12}, FP16: Rate{Peak: 125e12},
	},
	{
		Name: "T4", Product: "Tesla T4", Aliases: []string{"NVIDIA T4"},
		Arch: "Turing", Capability: Capability{7, 5}, SMs: 40, Watts: 70,
		Memory: 15360 * mib, Usable: 15_637_086_208, MeasuredContext: 135 * mib,
		Bandwidth: 320e9, SustainedBandwidth: 256e9, RowBandwidth: 230e9, HostIn: 8.9e9, HostOut: 7.8e9,
		FP32: Rate{Peak: 8.1e12, Sustained: 5.2e12},
		FP16: Rate{Peak: 65e12, Sustained: 24e12, BySize: []Sized{{512, 17.6e12}, {2048, 20e12}}},
		Source: "fp16: about 24 TFLOP/s for continuous 4096^3 matmuls, the 70 W limit holds the clock near its base of 585 MHz, " +
			"https://forums.developer.nvidia.com/t/about-gpu-peak-performance/264462, smaller ones and norms: " +
			"github.com/Vshiva27/cuda-transformer-performance (35.9 TFLOP/s at 1024 lasts for a second on a cool card); " +
			"fp32: what whole updates at 4.1 TFLOP/s need, github.com/incredere/gpu-profiling-pytorch-lab L5, cuBLAS alone was seen at 3.7 to 4.4; bandwidth: 251 to 262 GB/s on arrays of 1e6 elements and more; " +
			"copies from and to the host: the least of 8.9 to 9.2 and of 7.8 to 8.0 GB/s seen with OpenCL, github.com/GPGPUCourse/GPGPUTasks2025 #309; " +
			"usable memory: 14.56 GiB on Colab, Kaggle and GCP in 2025 and 2026; context: PyTorch 2.11 with cuBLAS and cuDNN, highwaterlabs/torch-guard",
	},
	{
		Name: "RTX 2080 Ti", Product: "NVIDIA GeForce RTX 2080 Ti", Arch: "Turing", Capability: Capability{7, 5}, SMs: 68, Watts: 250,
		Memory: 11264 * mib, Usable: 11019 * mib, Bandwidth: 616e9,
		FP32: Rate{Peak: 13.4e12}, FP16: Rate{Peak: 53.8e12},
	},
	{
		Name: "A100-40GB", Product: "NVIDIA A100-SXM4-40GB", Aliases: []string{"A100", "A100-40", "NVIDIA A100-PCIE-40GB"},
		Arch: "Ampere", Capability: Capability{8, 0}, SMs: 108, Watts: 400,
		Memory: 40960 * mib, Usable: 40326 * mib, Bandwidth: 1555e9,
		FP32: Rate{Peak: 19.5e12}, TF32: Rate{Peak: 156e12}, FP16: Rate{Peak: 312e12}, BF16: Rate{Peak: 312e12},
	},
	{
		Name: "A100-80GB", Product: "NVIDIA A100-SXM4-80GB", Aliases: []string{"A100-80", "NVIDIA A100 80GB PCIe"},
		Arch: "Ampere", Capability: Capability{8, 0}, SMs: 108, Watts: 400,
		Memory: 81920 * mib, Usable: 81050 * mib, Bandwidth: 2039e9,
		FP32: Rate{Peak: 19.5e12}, TF32: Rate{Peak: 156e12}, FP16: Rate{Peak: 312e12}, BF16: Rate{Peak: 312e12},
	},
	{
		Name: "A10", Product: "NVIDIA A10", Arch: "Ampere", Capability: Capability{8, 6}, SMs: 72, Watts: 150,
		Memory: 23028 * mib, Usable: 22587 * mib, Bandwidth: 600e9,
		FP32: Rate{Peak: 31.2e12}, TF32: Rate{Peak: 62.5e12}, FP16: Rate{Peak: 125e12}, BF16: Rate{Peak: 125e12},
	},
	{
		Name: "A10G", Product: "NVIDIA A10G", Arch: "Ampere", Capability: Capability{8, 6}, SMs: 80, Watts: 300,
		Memory: 23028 * mib, Usable: 22587 * mib, Bandwidth: 600e9,
		FP32: Rate{Peak: 35e12}, TF32: Rate{Peak: 35e12}, FP16: Rate{Peak: 70e12}, BF16: Rate{Peak: 70e12},
	},
	{
		Name: "RTX 3060", Product: "NVIDIA GeForce RTX 3060", Aliases: []string{"RTX 3060 12GB"},
		Arch: "Ampere", Capability: Capability{8, 6}, SMs: 28, Watts: 170,
		Memory: 12288 * mib, Usable: 11931 * mib, Bandwidth: 360e9,
		FP32: Rate{Peak: 12.7e12}, TF32: Rate{Peak: 12.7e12}, FP16: Rate{Peak: 25.5e12}, BF16: Rate{Peak: 25.5e12},
	},
	{
		Name: "RTX 3070", Product: "NVIDIA GeForce RTX 3070", Aliases: []string{"RTX 3070 8GB"},
		Arch: "Ampere", Capability: Capability{8, 6}, SMs: 46, Watts: 220,
		Memory: 8192 * mib, Usable: 7946 * mib, Bandwidth: 448e9,
		FP32: Rate{Peak: 20.3e12}, TF32: Rate{Peak: 20.3e12}, FP16: Rate{Peak: 40.6e12}, BF16: Rate{Peak: 40.6e12},
	},
	{
		Name: "RTX 3090", Product: "NVIDIA GeForce RTX 3090", Arch: "Ampere", Capability: Capability{8, 6}, SMs: 82, Watts: 350,
		Memory: 24576 * mib, Usable: 24259 * mib, Bandwidth: 936e9,
		FP32: Rate{Peak: 35.6e12}, TF32: Rate{Peak: 35.6e12}, FP16: Rate{Peak: 71e12}, BF16: Rate{Peak: 71e12},
	},
	{
		Name: "L4", Product: "NVIDIA L4", Arch: "Ada", Capability: Capability{8, 9}, SMs: 58, Watts: 72,
		Memory: 23034 * mib, Usable: 22563 * mib, Bandwidth: 300e9,
		FP32: Rate{Peak: 30.3e12}, TF32: Rate{Peak: 60e12}, FP16: Rate{Peak: 121e12}, BF16: Rate{Peak: 121e12},
	},
	{
		Name: "RTX 4090", Product: "NVIDIA GeForce RTX 4090", Arch: "Ada", Capability: Capability{8, 9}, SMs: 128, Watts: 450,
		Memory: 24564 * mib, Usable: 24203 * mib, Bandwidth: 1008e9,
		FP32: Rate{Peak: 82.6e12}, TF32: Rate{Peak: 82.6e12}, FP16: Rate{Peak: 165.2e12}, BF16: Rate{Peak: 165.2e12},
	},
	{
		Name: "L40S", Product: "NVIDIA L40S", Arch: "Ada", Capability: Capability{8, 9}, SMs: 142, Watts: 350,
		Memory: 46068 * mib, Usable: 45589 * mib, Bandwidth: 864e9,
		FP32: Rate{Peak: 91.6e12}, TF32: Rate{Peak: 183e12}, FP16: Rate{Peak: 362e12}, BF16: Rate{Peak: 362e12},
	},
	{
		Name: "H100-PCIe", Product: "NVIDIA H100 PCIe", Arch: "Hopper", Capability: Capability{9, 0}, SMs: 114, Watts: 350,
		Memory: 81559 * mib, Usable: 81008 * mib, Bandwidth: 2039e9,
		FP32: Rate{Peak: 51.2e12}, TF32: Rate{Peak: 378e12}, FP16: Rate{Peak: 756e12}, BF16: Rate{Peak: 756e12},
	},
	{
		Name: "H100-SXM", Product: "NVIDIA H100 80GB HBM3", Aliases: []string{"H100"},
		Arch: "Hopper", Capability: Capability{9, 0}, SMs: 132, Watts: 700,
		Memory: 81559 * mib, Usable: 81082 * mib, Bandwidth: 3352e9,
		FP32: Rate{Peak: 66.9e12}, TF32: Rate{Peak: 494.7e12}, FP16: Rate{Peak: 989.4e12}, BF16: Rate{Peak: 989.4e12},
	},
	{
		Name: "H200", Product: "NVIDIA H200", Arch: "Hopper", Capability: Capability{9, 0}, SMs: 132, Watts: 700,
		Memory: 143771 * mib, Usable: 143156 * mib, Bandwidth: 4800e9,
		FP32: Rate{Peak: 66.9e12}, TF32: Rate{Peak: 494.7e12}, FP16: Rate{Peak: 989.4e12}, BF16: Rate{Peak: 989.4e12},
	},
}
