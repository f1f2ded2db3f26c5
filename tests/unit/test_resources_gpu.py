"""GPUs through a made-up NVML: every figure, and every refusal by itself."""

from __future__ import annotations

import pynvml
import pytest

from loadtest.resources.gpu import Gpus
from loadtest.resources.record import GpuState
from tests.fake_machine import FakeGpu, FakeNvml

REFUSAL = str(pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED))
FIGURES_OF_CALLS = {
    "nvmlDeviceGetUtilizationRates": {"utilisation"},
    "nvmlDeviceGetMemoryInfo": {"memory_bytes"},
    "nvmlDeviceGetClockInfo": {"sm_clock_hz", "memory_clock_hz"},
    "nvmlDeviceGetTemperature": {"temperature_celsius"},
    "nvmlDeviceGetCurrentClocksEventReasons": {"throttled"},
    "nvmlGpmSampleGet": {"engine_active", "sm_active"},
    "nvmlGpmMetricsGet": {"engine_active", "sm_active"},
    "nvmlGpmQueryDeviceSupport": {"engine_active", "sm_active"},
}


def gpus_of(*gpus: FakeGpu, refused: dict[str, int] | None = None) -> Gpus:
    """On a clock that only the first GPU's work moves on."""
    return Gpus(FakeNvml(list(gpus), refused or {}), lambda: gpus[0].seconds)


def test_every_figure_of_a_gpu_is_read_in_its_base_unit() -> None:
    other, gpu = FakeGpu(), FakeGpu()
    gpus = gpus_of(other, gpu)
    other.run(2.0, engine=0.0, sm=0.0)
    gpu.run(2.0, engine=0.75, sm=0.5)
    gpu.reasons = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonGpuIdle
    reading = gpus.read()
    assert not reading.unmeasurable
    assert list(reading.value) == ["gpu0", "gpu1"]
    assert reading.value["gpu1"] == GpuState(
        utilisation=gpu.percent / 100,
        engine_active=0.75,
        sm_active=0.5,
        memory_bytes=gpu.memory_bytes,
        sm_clock_hz=gpu.sm_mhz * 1e6,
        memory_clock_hz=gpu.memory_mhz * 1e6,
        temperature_celsius=gpu.celsius,
        throttled=("power cap",),
    )


def test_the_engines_share_is_that_since_the_last_reading() -> None:
    gpu = FakeGpu()
    gpus = gpus_of(gpu)
    shares = []
    for share in (1.0, 0.0, 0.5):
        gpu.run(1.0, engine=share, sm=share / 2)
        shares.append(gpus.read().value["gpu0"].engine_active)
    assert shares == [1.0, 0.0, 0.5]


def test_readings_closer_than_the_monitors_own_steps_repeat_the_last_one() -> None:
    gpu = FakeGpu()
    gpus = gpus_of(gpu)
    assert gpus.read().value["gpu0"].engine_active is None
    for seconds, engine in ((1.0, 0.5), (0.01, 1.0)):
        gpu.run(seconds, engine=engine, sm=engine)
        assert gpus.read().value["gpu0"].engine_active == 0.5
    gpu.run(1.0, engine=0.0, sm=0.0)
    assert gpus.read().value["gpu0"].engine_active == pytest.approx(0.01 / 1.01)


def test_a_reading_that_failed_is_made_up_for_by_the_next_one() -> None:
    gpu = FakeGpu()
    nvml = FakeNvml([gpu])
    gpus = Gpus(nvml, lambda: gpu.seconds)
    gpu.run(1.0, engine=1.0, sm=1.0)
    nvml.refused["nvmlGpmMetricsGet"] = pynvml.NVML_ERROR_TIMEOUT
    assert gpus.read().value["gpu0"].engine_active is None
    nvml.refused.clear()
    gpu.run(3.0, engine=0.0, sm=0.0)
    assert gpus.read().value["gpu0"].engine_active == 1.0 / (1.0 + 3.0)


def test_a_gpu_without_a_monitor_says_so_and_tells_the_rest() -> None:
    reading = Gpus(FakeNvml([FakeGpu(has_monitor=False)])).read()
    assert reading.value["gpu0"].engine_active is None
    assert reading.value["gpu0"].utilisation == FakeGpu.percent / 100
    assert "no performance monitor" in reading.unmeasurable["gpus.gpu0.engine_active"]


@pytest.mark.parametrize(("call", "figures"), FIGURES_OF_CALLS.items())
def test_one_refused_call_costs_only_its_own_figures(call: str, figures: set[str]) -> None:
    gpu = FakeGpu()
    gpus = gpus_of(gpu, refused={call: pynvml.NVML_ERROR_NOT_SUPPORTED})
    gpu.run(1.0, engine=0.5, sm=0.5)
    reading = gpus.read()
    state = reading.value["gpu0"].model_dump()
    assert {figure for figure, value in state.items() if value is None} == figures
    assert {what.rpartition(".")[2] for what in reading.unmeasurable} == figures
    assert all(REFUSAL in why for why in reading.unmeasurable.values())


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"])
def test_a_machine_without_nvml_says_why(call: str) -> None:
    nvml = FakeNvml([FakeGpu()], {call: pynvml.NVML_ERROR_DRIVER_NOT_LOADED})
    gpus = Gpus(nvml)
    reading = gpus.read()
    assert reading.value == {}
    assert "Driver Not Loaded" in reading.unmeasurable["gpus"]
    assert gpus.rails() == []
    gpus.close()
    assert not nvml.is_open


def test_a_driver_without_devices_says_so() -> None:
    assert "no device" in Gpus(FakeNvml([])).read().unmeasurable["gpus"]


def test_energy_is_what_the_gpu_counted() -> None:
    gpu = FakeGpu()
    (rail,) = Gpus(FakeNvml([gpu])).rails()
    rail.read(10.0)
    gpu.millijoules += 3000
    state = rail.read(12.0)
    assert rail.name == "nvml:gpu0"
    assert (state.joules, state.watts) == (3.0, 3.0 / 2)


def test_a_gpu_that_counts_no_energy_is_summed_up_from_its_power() -> None:
    gpu = FakeGpu()
    refused = {"nvmlDeviceGetTotalEnergyConsumption": pynvml.NVML_ERROR_NOT_SUPPORTED}
    (rail,) = Gpus(FakeNvml([gpu], refused)).rails()
    gpu.milliwatts = 10_000
    rail.read(10.0)
    gpu.milliwatts = 30_000
    state = rail.read(12.0)
    assert (state.joules, state.watts) == (2 * (10 + 30) / 2, 30.0)


def test_closing_frees_the_monitor_and_shuts_nvml_down() -> None:
    nvml = FakeNvml([FakeGpu(), FakeGpu()])
    gpus = Gpus(nvml)
    assert nvml.is_open
    assert len(nvml.samples) == 2 * 2
    gpus.close()
    gpus.close()
    assert not nvml.is_open
    assert nvml.samples == {}
