#!/usr/bin/env bash
# Records case 01 anew, as root: record.sh TFMEM PYTHON_PREFIX SITE_PACKAGES. Needed when the format's version or the
# probes change; then bless the golden files (TFMEM_BLESS=1 cargo test -p tfmem --test recordings).
#
# In namespaces of its own, where Python and TensorFlow lie in the same neutral places on every machine: what a
# recording tells of a machine does not belong into a repository.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tfmem=$(realpath "$1") python=$(realpath "$2") packages=$(realpath "$3")
case=$here/../../../tests/cases/01_unclosed_tf1_session.py
if [ -z "${TFMEM_RECORD_INSIDE:-}" ]; then
  TFMEM_RECORD_INSIDE=1 exec unshare --mount --uts "$0" "$@"
fi
hostname example
scratch=$(mktemp -d)
install -m 0755 "$tfmem" "$scratch/tfmem"
cp "$case" "$scratch/train.py"
echo 00000000-0000-0000-0000-000000000000 >"$scratch/boot_id"
mount --bind "$scratch/boot_id" /proc/sys/kernel/random/boot_id
uname -r | sed "s/-.*//" >"$scratch/kernel"
mount --bind "$scratch/kernel" /proc/sys/kernel/osrelease
mount -t tmpfs none /opt
mkdir /opt/python /opt/tensorflow /opt/job
mount --bind "$python" /opt/python
mount --bind "$packages" /opt/tensorflow
mount --bind "$scratch" /opt/job
cd /opt/job
env -i PATH=/usr/bin:/bin PYTHONPATH=/opt/tensorflow PYTHONDONTWRITEBYTECODE=1 \
  LD_LIBRARY_PATH=/opt/python/lib TF_CPP_MIN_LOG_LEVEL=3 TF_ENABLE_ONEDNN_OPTS=1 \
  STOP_AT=training_end \
  ./tfmem run -o case01.tfmem -- /opt/python/bin/python3 train.py
install -m 0644 case01.tfmem "$here/case01.tfmem"
cd /
rm -r "$scratch" 2>/dev/null || true
