"""A Slurm cluster of one machine: munged, slurmctld and slurmd on loopback, as whoever runs this.

munged is forced, since a folder of pytest is closed to others. A requeued job waits until its credential has expired,
two minutes by default; and control groups are not ours to make.
"""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time

CONF = """
ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=6
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """The programs that are not here."""
    sbin = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    return [name for name in ("munged", "slurmctld", "slurmd", "srun", "sbatch") if not shutil.which(name, path=sbin)]


@contextlib.contextmanager
def cluster(folder, cpus=4):
    """Start the daemons, with ``SLURM_CONF`` set for all that is started from here, and end them."""
    host = socket.gethostname().partition(".")[0]
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(host=host, user=getpass.getuser(), folder=folder, ports=_ports(2), cpus=cpus))
    environment = {**os.environ, "SLURM_CONF": str(conf), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    munge = {name: folder / f"munge.{name}" for name in ("socket", "key-file", "pid-file", "log-file", "seed-file")}
    munge["key-file"] = folder / "munge.key"
    commands = [
        ["munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in munge.items())],
        ["slurmctld", "-D", "-i"],
        ["slurmd", "-D", "-N", host],
    ]
    daemons = []
    before = os.environ.get("SLURM_CONF")
    try:
        for command in commands:
            with (folder / f"{command[0]}.log").open("wb") as log:
                daemons.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            _until(lambda: munge["socket"].exists(), folder)
        os.environ["SLURM_CONF"] = str(conf)
        _until(lambda: _said("sinfo", "--noheader", "--format=%t").startswith("idle"), folder)
        yield
    finally:
        _said("scancel", "--me")
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(30)
        os.environ.pop("SLURM_CONF", None)
        if before is not None:
            os.environ["SLURM_CONF"] = before


def _said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.strip()


def _until(condition, folder, seconds=60):
    for _ in range(seconds * 5):
        if condition():
            return
        time.sleep(0.2)
    logs = {file.name: file.read_text()[-500:] for file in folder.glob("*.log")}
    raise TimeoutError(f"the daemons do not come up: {logs}")


def _ports(count):
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
