# Detects the virtualization type of the node by booting a guest. An accessible /dev/kvm does not prove that KVM
# works.
set -eu
result=/run/libvirt/openstack-virt-type

# Boots a guest that checks its CPU for 64-bit support and writes to the port at which QEMU exits with 33. It uses the
# CPU model of instances.
boots() {
    firmware=$(mktemp)
    {
        head -c 65280 /dev/zero
        # mov eax, 80000001h; cpuid; test edx, 1 << 29; jz 1f; mov al, 10h; out f4h, al; 1: mov al, 20h; out f4h, al; hlt
        printf '\x66\xb8\x01\x00\x00\x80\x0f\xa2\x66\xf7\xc2\x00\x00\x00\x20\x74\x04\xb0\x10\xe6\xf4\xb0\x20\xe6\xf4\xf4'
        head -c 214 /dev/zero
        # Reset vector: jmp to the above.
        printf '\xe9\x0d\xff'
        head -c 13 /dev/zero
    } >"$firmware"
    status=0
    timeout 30 qemu-system-x86_64 -accel "$1" -cpu "$2" -M pc -m 16 -nodefaults -no-user-config -display none -bios "$firmware" \
        -device isa-debug-exit,iobase=0xf4,iosize=0x04 || status=$?
    rm "$firmware"
    [ "$status" = 33 ]
}

reason='set in the spec'
virt_type=$VIRT_TYPE
if [ "$virt_type" = auto ]; then
    if [ ! -e /dev/kvm ]; then
        virt_type=qemu reason='the node has no /dev/kvm: guests are emulated, which is slow'
    elif boots kvm host; then
        virt_type=kvm reason='a guest ran on /dev/kvm'
    else
        virt_type=qemu reason='the node has /dev/kvm, but no guest runs on it: guests are emulated, which is slow'
    fi
fi
printf '%s\n' "$virt_type" >"$result.new"
mv "$result.new" "$result"
printf '%s: %s\n' "$virt_type" "$reason" | tee /dev/termination-log
