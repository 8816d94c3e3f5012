"""Prints the table of `tests.rs`: the moments of cron expressions around changes of the clock, minute by minute, by Python's `zoneinfo`."""
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo
UTC=timezone.utc
def field(text, lo, hi):
    out=set()
    for part in text.split(','):
        r,_,step=part.partition('/'); step=int(step or 1)
        if r=='*': a,b=lo,hi
        elif '-' in r: a,b=map(int,r.split('-'))
        else: a=b=int(r)
        out|=set(range(a,b+1,step))
    return out
def moments(expr, zone, begin, hours):
    tz=ZoneInfo(zone); m,h=expr.split()[:2]; M,H=field(m,0,59),field(h,0,23)
    b=datetime.fromisoformat(begin).replace(tzinfo=UTC); n=hours*60
    us=[b+timedelta(minutes=i) for i in range(n+1)]
    loc=[u.astimezone(tz).replace(tzinfo=None) for u in us]
    out=set()
    if m[0]=='*' or h[0]=='*':
        for u,l in zip(us,loc):
            if l.minute in M and l.hour in H: out.add(u)
    else:
        c=min(loc)
        while c<=max(loc):
            if c.minute in M and c.hour in H:
                i=next((i for i,l in enumerate(loc) if l==c),None)
                if i is None: # skipped by the clock: the first minute that shows a later time
                    i=next(i for i,l in enumerate(loc) if l>c and loc[i-1]<c)
                out.add(us[i])
            c+=timedelta(minutes=1)
    return sorted(u for u in out if u>b)
cases=[]
days={"Europe/Berlin":["2026-03-28T20:00","2026-10-24T20:00"],"America/New_York":["2026-03-08T04:00","2026-11-01T03:00"],"Australia/Lord_Howe":["2026-10-03T12:00","2026-04-04T12:00"]}
exprs={"Europe/Berlin":["30 2 * * *","0 3 * * *","15,45 2 * * *","0 * * * *","30 */2 * * *","*/30 2 * * *"],
"America/New_York":["30 2 * * *","30 1 * * *","0 1-3 * * *","0 * * * *","*/20 1 * * *"],
"Australia/Lord_Howe":["15 2 * * *","45 1 * * *","0 2 * * *","30 2 * * *","*/15 1-2 * * *","45 * * * *"]}
for z in days:
    for d in days[z]:
        for e in exprs[z]:
            hrs={"Europe/Berlin":7,"America/New_York":5,"Australia/Lord_Howe":6}[z]
            ms=moments(e,z,d,hrs)
            print(f'    ("{e}", "{z}", "{d}:00Z", {hrs}, &['+", ".join('"'+u.strftime("%H:%M")+'"' for u in ms)+"]),")
