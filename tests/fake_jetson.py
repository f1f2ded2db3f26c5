"""A Jetson Orin Nano laid out in a folder as ``/``, from what is publicly known of one.

Rails, labels and ``soctherm_oc`` are those of NVIDIA's *Jetson Linux Developer Guide* (r36, "Jetson
Orin Nano Series, ..."); zones, GPU folder, ``nvpmodel`` files and the line of tegrastats are as
boards with L4T 36 were seen to show them in public logs. Not verified on a board of our own: the
types of cooling devices, and nvmap's table in debugfs.
"""

from __future__ import annotations

from pathlib import Path

MODES = """< POWER_MODEL ID=0 NAME=15W >
CPU_ONLINE CORE_0 1
< POWER_MODEL ID=1 NAME=25W >
< POWER_MODEL ID=2 NAME=MAXN_SUPER >
< PM_CONFIG DEFAULT=1 >
"""

TEGRASTATS = (
    "05-05-2025 06:05:39 RAM 2639/7620MB (lfb 9x4MB) SWAP 0/3810MB (cached 0MB) "
    "CPU [1%@729,4%@729,off,4%@729,5%@729,4%@729] GR3D_FREQ 37% cpu@44.156C soc2@43.781C "
    "gpu@45.968C tj@45.968C VDD_IN 5263mW/5011mW VDD_CPU_GPU_CV 717mW/700mW VDD_SOC 1794mW/1790mW"
)


class FakeJetson:
    """``root`` is what ``--device-root`` is given."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/device-tree/model", "NVIDIA Jetson Orin Nano Developer Kit\0")
        self.write(
            "proc/meminfo", "MemTotal: 7802000 kB\nMemFree: 100 kB\nMemAvailable: 3901000 kB\n"
        )
        self.write(
            "etc/nv_tegra_release", "# R36 (release), REVISION: 4.3, GCID: 1, BOARD: generic\n"
        )
        self.write("etc/nvpmodel.conf", MODES)
        self.write("var/lib/nvpmodel/status", "pmode:0001 fmode:quiet\n")
        self.write(
            "sys/kernel/debug/nvmap/iovmm/clients",
            "CLIENT  PROCESS  PID  SIZE\nuser  python3  77  1024K\ntotal  2048K\n",
        )
        self.clocks(cpu_khz=1_344_000, gpu_hz=918_000_000)
        self.zones(cpu=45_000, gpu=44_500)
        self.cooler("cpu-throttle-alert", state=0)
        self.cooler("pwm-fan", state=2, highest=3)
        self.over_current(0)
        self.rails(milliwatts=6000)

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def clocks(self, *, cpu_khz: int, gpu_hz: int) -> None:
        policy, gpu = "sys/devices/system/cpu/cpufreq/policy0", "sys/class/devfreq/17000000.gpu"
        self.write(f"{policy}/scaling_cur_freq", f"{cpu_khz}\n")
        self.write(f"{policy}/scaling_max_freq", "1344000\n")
        self.write(f"{policy}/cpuinfo_max_freq", "1728000\n")
        self.write(f"{gpu}/cur_freq", f"{gpu_hz}\n")
        self.write(f"{gpu}/max_freq", "918000000\n")
        self.write(f"{gpu}/available_frequencies", "306000000 612000000 918000000 1020000000\n")
        self.write(f"{gpu}/device/load", "812\n")

    def zones(self, **millidegrees: int) -> None:
        for number, (name, value) in enumerate(millidegrees.items()):
            folder = f"sys/class/thermal/thermal_zone{number}"
            self.write(f"{folder}/type", f"{name}-thermal\n")
            self.write(f"{folder}/temp", f"{value}\n")

    def cooler(self, kind: str, *, state: int, highest: int = 1) -> None:
        folder = f"sys/class/thermal/cooling_device{0 if kind.startswith('cpu') else 1}"
        self.write(f"{folder}/type", f"{kind}\n")
        self.write(f"{folder}/cur_state", f"{state}\n")
        self.write(f"{folder}/max_state", f"{highest}\n")

    def over_current(self, events: int) -> None:
        folder = "sys/class/hwmon/hwmon2"
        self.write(f"{folder}/name", "soctherm_oc\n")
        self.write(f"{folder}/oc3_event_cnt", f"{events}\n")

    def rails(self, *, milliwatts: int) -> None:
        """At 5 V; the whole input, and a part of it."""
        folder = "sys/class/hwmon/hwmon1"
        self.write(f"{folder}/name", "ina3221\n")
        for channel, (label, share) in enumerate((("VDD_IN", 1.0), ("VDD_SOC", 0.3)), 1):
            self.write(f"{folder}/in{channel}_label", f"{label}\n")
            self.write(f"{folder}/in{channel}_input", "5000\n")
            self.write(f"{folder}/curr{channel}_input", f"{round(milliwatts * share / 5)}\n")

    def without(self, path: str) -> None:
        """Take a file away."""
        (self.root / path).unlink()
