// What a CPU build of torch lacks before tensors may claim to be on cuda:0 or mps:0: a guard of the device,
// which autograd asks for streams, and the hooks that say that there is one. One device, one stream, no work.

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#ifdef STANDIN_MPS
#define STANDIN_KIND MPS
#else
#define STANDIN_KIND CUDA
#endif

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

const Device only(c10::DeviceType::STANDIN_KIND, 0);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return only.type(); }
  Device exchangeDevice(Device) const override { return only; }
  Device getDevice() const override { return only; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, only); }
  Stream getDefaultStream(Device) const override { return Stream(Stream::DEFAULT, only); }
  Stream exchangeStream(Stream) const noexcept override { return Stream(Stream::DEFAULT, only); }
  DeviceIndex deviceCount() const noexcept override { return 1; }
};

#ifdef STANDIN_MPS
struct Hooks final : at::MPSHooksInterface {
  bool hasMPS() const override { return true; }
#else
struct Hooks final : at::CUDAHooksInterface {
  bool hasCUDA() const override { return true; }
  DeviceIndex current_device() const override { return 0; }
#endif
  template <class... Args>  // what a registry passes depends on the version
  explicit Hooks(Args...) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return false; }
  bool isPinnedPtr(const void*) const override { return false; }
};

const c10::impl::DeviceGuardImplRegistrar registered(c10::DeviceType::STANDIN_KIND, new Guard);

}  // namespace

namespace at {
#ifdef STANDIN_MPS
C10_REGISTER_CLASS(MPSHooksRegistry, MPSHooks, Hooks)
#else
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, Hooks)
#endif
}
